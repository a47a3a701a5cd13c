"""The devices that a model is trained on: one, several of this machine, or several machines."""
