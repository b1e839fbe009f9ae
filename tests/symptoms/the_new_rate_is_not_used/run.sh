python train.py \
    --lr 3e-5 --min-lr 2e-5 --lr-decay-style cosine --train-iters 1000 --lr-warmup-iters 0 \
    --override-opt_param-scheduler \
    --micro-batch-size 1 --global-batch-size 32
