from .app import COMMANDS as COMMANDS
from .app import attribute_of as attribute_of
from .app import load_command as load_command
from .optimizer import optimizer_help as optimizer_help
