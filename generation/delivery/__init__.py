"""How a reply's tokens get from the worker to whoever reads them: in order, without gap or double.

`stream.py` names keys and formats, `writer.py` is the worker's side, `reader.py` and `hub.py` the web's.
"""

from generation.delivery.follow import follow

__all__ = ["follow"]
