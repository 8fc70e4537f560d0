if __name__ == "reference":  # the folder was found on sys.path under its bare name
    raise ImportError("import encdoctor.reference, not reference")

from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.encoder import Encoder
from encdoctor.reference.packing import PackedEncoder
from encdoctor.reference.vision import PatchEmbedding

__all__ = ["Encoder", "EncoderConfig", "PackedEncoder", "PatchEmbedding"]
