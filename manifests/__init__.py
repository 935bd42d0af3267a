"""Ready manifests: what to build for each model family and architecture, installed with the package."""
