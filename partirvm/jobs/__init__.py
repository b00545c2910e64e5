"""A fit with a life: its folder, its journal, and the driver that carries it out."""
