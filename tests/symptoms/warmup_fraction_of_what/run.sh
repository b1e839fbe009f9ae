torchrun finetune.py \
    --lr 1e-4 --min-lr 1e-5 \
    --train-iters 350 \
    --lr-decay-iters 10 \
    --lr-warmup-fraction 0.1 \
    --lr-decay-style cosine \
    --micro-batch-size 1 --global-batch-size 128
