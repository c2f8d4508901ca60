"""Doors to and from other packages of the field; a module is for those who have the package that it names."""
