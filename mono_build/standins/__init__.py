"""Stand-ins for modules of other projects that kernel sources import, for machines without them."""
