"""Compares training of nets that TensorFlow and Paddle export: bench/check_exporters.py HEADROOM FOLDER [tf|paddle]

Makes small nets of Keras or of Paddle, whichever is installed (both with their exporter: tf2onnx or paddle2onnx),
exports each into FOLDER, and trains each file on the CPU by the command HEADROOM for six steps of SGD. A line for each
file: how far its losses and its output before training are from the framework's, relative to their size.

tf2onnx folds batch normalization into convolutions, so that a file trains without it. It writes the one bias of a
Keras LSTM as two, both of which are trained: the comparison moves Keras's by twice the rate.
"""
import json
import os
import struct
import subprocess
import sys

import numpy as np

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
STEPS, RATE, ROWS = 6, 0.01, 8
KINDS = {"float32": "F32", "int32": "I32"}


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = np.ascontiguousarray(tensor).tobytes()
        place = [len(data), len(data) + len(content)]
        header[name] = {"dtype": KINDS[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": place}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def drawn(shape, words=0):
    if words:
        return np.random.randint(0, words, (ROWS, *shape)).astype("int32")
    return np.random.rand(ROWS, *shape).astype("float32")


def far(a, b):
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / np.max(np.abs(b)))


def compare(headroom, folder, name, losses):
    data = f"{folder}/{name}.safetensors"
    command = [headroom, "train", "--model", f"{folder}/{name}.onnx", "--data", data, "--optimizer", "sgd"]
    command += ["--learning-rate", str(RATE), "--steps", str(STEPS), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{name:20} {done.stderr.strip()[:200]}")
        return
    ours = json.loads(done.stdout)
    print(f"{name:20} losses {far(ours['losses'], losses):.1e}  output {ours['eval_output_error']:.1e}", flush=True)


def keras_nets(keras):
    layers = keras.layers

    def mlp():
        x = keras.Input((20,))
        y = layers.LayerNormalization()(layers.Dense(32, activation="silu")(x))
        return keras.Model(x, layers.Dense(5)(y)), drawn((20,))

    def attention():
        x = keras.Input((16,), dtype="int32")
        y = layers.Embedding(50, 32)(x)
        y = layers.LayerNormalization()(layers.Add()([y, layers.MultiHeadAttention(4, 8)(y, y)]))
        return keras.Model(x, layers.Dense(5)(layers.Flatten()(y))), drawn((16,), 50)

    def images():
        x = keras.Input((16, 16, 3))
        y = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        y = layers.Add()([y, layers.Activation("swish")(layers.DepthwiseConv2D(3, padding="same")(y))])
        y = layers.UpSampling2D()(layers.Conv2DTranspose(8, 3, strides=2, padding="same")(layers.MaxPooling2D()(y)))
        return keras.Model(x, layers.Dense(5)(layers.GlobalAveragePooling2D()(y))), drawn((16, 16, 3))

    def lstm():
        x = keras.Input((12, 8))
        return keras.Model(x, layers.Dense(5)(layers.LSTM(16)(x))), drawn((12, 8))

    return {"tf_mlp": mlp, "tf_attention": attention, "tf_images": images, "tf_lstm": lstm}


def check_keras(headroom, folder):
    import tensorflow as tf
    import tf2onnx
    from tensorflow import keras

    for name, make in keras_nets(keras).items():
        tf.random.set_seed(0)
        np.random.seed(0)
        net, x = make()
        for weight in net.trainable_variables:  # no two weights alike, which an exporter would merge
            weight.assign_add(0.05 * np.random.randn(*weight.shape))
        y = np.random.randint(0, 5, ROWS).astype("int32")
        signature = [tf.TensorSpec((None, *x.shape[1:]), x.dtype, name="x")]
        forward = tf.function(lambda x, net=net: net(x, training=False), input_signature=signature)
        tf2onnx.convert.from_function(
            forward, input_signature=signature, opset=17, output_path=f"{folder}/{name}.onnx"
        )
        save(f"{folder}/{name}.safetensors", {"x": x, "y": y, "eval_output": net(x, training=False).numpy()})
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        losses = []
        for _ in range(STEPS):
            with tf.GradientTape() as tape:
                loss = loss_of(y, net(x, training=True))
            losses.append(float(loss))
            for weight, gradient in zip(net.trainable_variables, tape.gradient(loss, net.trainable_variables)):
                is_twice = "lstm" in weight.path and "bias" in weight.path
                weight.assign_sub(RATE * (2 if is_twice else 1) * tf.convert_to_tensor(gradient))
        compare(headroom, folder, name, losses)


def paddle_nets(nn, F):
    class Attention(nn.Layer):
        def __init__(self):
            super().__init__()
            self.table, self.heads = nn.Embedding(50, 32), nn.MultiHeadAttention(32, 4)
            self.norm, self.last = nn.LayerNorm(32), nn.Linear(32, 5)

        def forward(self, x):
            y = self.table(x)
            return self.last(self.norm(y + self.heads(y, y, y)).mean(1))

    class Images(nn.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2D(3, 16, 3, padding=1, bias_attr=False), nn.BatchNorm2D(16)
            self.second, self.last = nn.Conv2D(16, 16, 3, padding=1, groups=16), nn.Linear(16, 5)

        def forward(self, x):
            y = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
            return self.last(F.adaptive_avg_pool2d(y + F.silu(self.second(y)), 1).flatten(1))

    def mlp():
        return nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))

    return {
        "paddle_mlp": (mlp, drawn((20,))),
        "paddle_attention": (Attention, drawn((16,), 50)),
        "paddle_images": (Images, drawn((3, 16, 16))),
    }


def check_paddle(headroom, folder):
    import paddle
    from paddle.nn import functional as F

    for name, (make, x) in paddle_nets(paddle.nn, F).items():
        paddle.seed(0)
        np.random.seed(0)
        net = make()
        for weight in net.parameters():
            weight.set_value(weight + 0.05 * paddle.randn(weight.shape))
        y = np.random.randint(0, 5, ROWS).astype("int32")
        fed = paddle.to_tensor(x.astype("int64") if x.dtype == np.int32 else x)
        net.eval()
        output = net(fed).numpy()
        spec = paddle.static.InputSpec([None, *x.shape[1:]], str(fed.numpy().dtype), name="x")
        paddle.onnx.export(net, f"{folder}/{name}", input_spec=[spec], opset_version=17)
        save(f"{folder}/{name}.safetensors", {"x": x, "y": y, "eval_output": output})
        net.train()
        optimizer = paddle.optimizer.SGD(RATE, net.parameters())
        losses = []
        for _ in range(STEPS):
            loss = F.cross_entropy(net(fed), paddle.to_tensor(y.astype("int64")))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
        compare(headroom, folder, name, losses)


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    headroom, folder, *which = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for name, check in (("tf", check_keras), ("paddle", check_paddle)):
        if which and name not in which:
            continue
        try:
            check(headroom, folder)
        except ModuleNotFoundError as error:
            print(f"{name}: {error}; nothing checked")


main()
