"""The store's writing side: building, checking, comparing, cleaning and moving stores."""
