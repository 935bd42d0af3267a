"""How each family's deployment follows from a server's configuration, and every reason why there is none."""
