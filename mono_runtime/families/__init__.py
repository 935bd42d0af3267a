"""The families' launches and build keys, and the keys that a deployment asks for; nothing here compiles."""
