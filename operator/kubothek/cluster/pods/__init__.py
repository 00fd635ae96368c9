"""Pure builders of the pods and ConfigMaps of an attempt."""
