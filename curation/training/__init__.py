# SPDX-License-Identifier: Apache-2.0
"""PyTorch data sets over the outputs of a run. Requires PyTorch, by the extra `torch`.

    from curation.training import BlockDataset, Loader
    loader = Loader(BlockDataset("out/blocks", seed=1), batch_size=8, workers=4)
    for batch in loader: ...                    # LongTensor [8, 1024]
    torch.save(loader.state_dict(), "loader.pt")  # `load_state_dict` resumes with the next sample

The global order of samples depends only on the seed and the epoch, not on the number of workers or ranks. Ranks divide
this order, so together they read every sample once.
"""

from curation.base.errors import installation

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"curation.training needs PyTorch ({error}); {installation('torch')}") from error

from curation.training.blocks import BlockDataset
from curation.training.chunks import ChunkDataset, collate
from curation.training.loader import Loader, load_sample, save_sample
from curation.training.megatron import MegatronDataset
from curation.training.packed import PackedDataset
from curation.training.tokens import TokenDataset

__all__ = [
    "BlockDataset", "ChunkDataset", "Loader", "MegatronDataset", "PackedDataset", "TokenDataset", "collate",
    "load_sample", "save_sample",
]  # fmt: skip
