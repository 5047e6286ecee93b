"""What reference.py knows, for the interpreter without PyTorch."""

LOSSES = ["cross_entropy", "mse", "l1", "huber", "bce_with_logits"]
OPTIMIZERS = ["sgd", "sgd:momentum=0.9,nesterov,weight_decay=0.01", "adam", "adamw:weight_decay=0.1,beta2=0.95",
              "rmsprop:momentum=0.5", "adagrad"]
