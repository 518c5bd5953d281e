"""What a message is about, and how sure that is: a model in two sizes.

Reads {"text": ...} from the file that GPUJOBS_PARAMS names, and writes result.json into
GPUJOBS_ARTIFACTS. The small one knows whole words; the large one also parts of words,
and so understands what is mistyped. Both are trained as they start: that takes less
than a second.
"""

import argparse
import json
import os
from pathlib import Path

from corpus import messages
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline, make_union

SEED = 7


def model(size: str) -> Pipeline:
    if size == "small":
        return make_pipeline(CountVectorizer(), MultinomialNB(alpha=0.3))
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    return make_pipeline(
        make_union(words, parts), LogisticRegression(C=60, random_state=SEED)
    )


def classify(size: str, text: str) -> dict[str, object]:
    trained = model(size).fit(*messages())
    (chances,) = trained.predict_proba([text])
    best = chances.argmax()
    return {
        "label": str(trained.classes_[best]),
        "confidence": round(float(chances[best]), 4),
        "model": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=["small", "large"], required=True)
    size = parser.parse_args().size
    params = json.loads(Path(os.environ["GPUJOBS_PARAMS"]).read_text())
    result = classify(size, params["text"])
    folder = Path(os.environ["GPUJOBS_ARTIFACTS"])
    (folder / "result.json").write_text(json.dumps(result))
    print(f"{result['label']} with confidence {result['confidence']}")


if __name__ == "__main__":
    main()
