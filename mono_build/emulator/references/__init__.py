"""What launches should compute: plain torch, a package for each family."""
