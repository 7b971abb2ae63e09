"""With this folder on PYTHONPATH every Python finds the operations beside this file as corpusmill.<name>, as an engine's worker asks for them."""

from pathlib import Path

import corpusmill

corpusmill.__path__.append(str(Path(__file__).parent))
