"""The systems that are compared, behind one small interface."""
