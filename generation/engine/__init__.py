"""Continuous batching for language models: many replies at once, each token the moment it exists.

Importing this package loads neither torch, transformers, Django nor Celery; an engine loads the first two
when it is given a model.
"""

from generation.engine.config import EngineConfig, EngineStats
from generation.engine.engine import Engine
from generation.engine.errors import DeviceLost, EngineClosed, ModelRefused, PromptError, PromptTooLong
from generation.engine.events import Event, EventType, FinishReason, Timings, Usage
from generation.engine.loading import load_engine
from generation.engine.params import ParamsError, SamplingParams
from generation.engine.sequence import Sequence
from generation.engine.spec import ModelSpec, parse_models

__all__ = [
    "DeviceLost",
    "Engine",
    "EngineClosed",
    "EngineConfig",
    "EngineStats",
    "Event",
    "EventType",
    "FinishReason",
    "ModelRefused",
    "ModelSpec",
    "ParamsError",
    "PromptError",
    "PromptTooLong",
    "SamplingParams",
    "Sequence",
    "Timings",
    "Usage",
    "load_engine",
    "parse_models",
]
