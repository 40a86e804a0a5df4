"""Write model.pt, the checkpoint that the golden texts are about: python tests/golden/make_model.py

It is stored beside this file, since another torch or another processor would train another network.
After training it again, run `make update-golden`.
"""

from pathlib import Path

from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.train import Training, train

if __name__ == "__main__":
    network = train(load_dataset("digits"), "digits-mlp", training=Training(epochs=8))
    save_model(Path(__file__).with_name("model.pt"), network)
