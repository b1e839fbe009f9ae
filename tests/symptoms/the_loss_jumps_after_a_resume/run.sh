python train.py \
    --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine \
    --train-iters 1000 --lr-decay-iters 1000 --lr-warmup-iters 50 \
    --micro-batch-size 1 --global-batch-size 32
