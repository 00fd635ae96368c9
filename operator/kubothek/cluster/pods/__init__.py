"""What is created for an attempt: pure builders of pods and ConfigMaps."""
