"""The names of `subtle` for type checkers; at run time each is imported when it is asked for."""

from hf_datasets.video import VideoError as VideoError
from hf_models.index.store import IndexDamagedError as IndexDamagedError
from hf_models.index.store import ModelChangedError as ModelChangedError
from subtle.client import Client as Client
from subtle.client import ServiceError as ServiceError
from subtle.footage.fiftyone import to_fiftyone as to_fiftyone
from subtle.index import Index as Index
from subtle.index import Moment as Moment
from subtle.index import create_index as create_index
from subtle.index import open_index as open_index
