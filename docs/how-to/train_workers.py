"""Train one model on several machines, with TensorFlow's MultiWorkerMirroredStrategy."""

import argparse
import shutil

import keras
import tensorflow as tf

import tfrtool

SIZE, BATCH, EPOCHS = 32, 16, 3  # of a batch, each worker has its share


def train(paths):
    """Train one model together with all other workers of TF_CONFIG."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before all else in TensorFlow
    dataset = tfrtool.dataset(paths["dataset"])
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((SIZE, SIZE, 3)),
                keras.layers.Conv2D(16, 3, 2, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(len(dataset.class_names), activation="softmax"),
            ]
        )
        optimizer = keras.optimizers.Adam(0.001)
        optimizer.build(model.trainable_variables)

    # The first worker saves. TensorFlow has the others write, too.
    done = tf.Variable(0)  # epochs
    number = strategy.cluster_resolver.task_id or 0
    folder = f"{paths['out']}/checkpoints" if number == 0 else f"{paths['out']}/unused-{number}"
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(state, folder, max_to_keep=1)
    state.restore(tf.train.latest_checkpoint(f"{paths['out']}/checkpoints"))

    def load(context):
        return dataset.load(
            "train",
            image_size=SIZE,
            batch_size=BATCH,
            first_epoch=int(done.numpy()),
            context=context,
        )

    def step(images, labels):
        count = tf.shape(labels)[0]
        # In the last step, a worker may have no image, which some layers can't take.
        padding = [[0, tf.maximum(1 - count, 0)], [0, 0], [0, 0], [0, 0]]
        with tf.GradientTape() as tape:
            scores = model(tf.pad(images, padding), training=True)[:count]
            losses = keras.losses.sparse_categorical_crossentropy(labels, scores)
            loss = tf.reduce_sum(losses) / BATCH  # the optimizer adds up all workers' gradients
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return tf.reduce_sum(losses)

    @tf.function
    def step_of_all(batch):
        return strategy.reduce("SUM", strategy.run(step, batch), axis=None)

    batches = strategy.distribute_datasets_from_function(load)
    while int(done.numpy()) < EPOCHS:
        loss = sum(float(step_of_all(batch)) for batch in batches)  # an epoch
        done.assign_add(1)
        manager.save()
        if number == 0:
            print(f"epoch {int(done.numpy())}: loss {loss / dataset.splits['train'].records:.4f}")
    if number == 0:
        model.save(f"{paths['out']}/model.keras")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def train_on_ray(address, workers, paths):
    """Train in processes on the nodes of a Ray cluster, for which Ray sets TF_CONFIG."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    ray.init(address)
    TensorflowTrainer(
        train,
        train_loop_config=paths,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            storage_path=f"{paths['out']}/ray", failure_config=FailureConfig(max_failures=3)
        ),
    ).fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("out")
    parser.add_argument("--ray", metavar="HOST:PORT")
    parser.add_argument("--workers", type=int, default=2)
    words = parser.parse_args()
    paths = {"dataset": words.dataset, "out": words.out}
    train_on_ray(words.ray, words.workers, paths) if words.ray else train(paths)
