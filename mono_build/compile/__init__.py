"""From a launch key to an artefact: trace, lower, extract, check, each launch in a process of its own."""
