"""The command line, one file per command."""

from attsvm._utils.doors import open_door

# for the other packages of attsvm; there are no public names
__door__ = ("COMMANDS", "attribute_of", "load_command", "optimizer_help")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
