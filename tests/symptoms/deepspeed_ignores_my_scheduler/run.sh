torchrun --nproc_per_node=8 train.py \
    --max_steps 20000 \
    --learning_rate 3e-4 \
    --warmup_steps 2000 \
    --lr_scheduler_type cosine \
    --weight_decay 0.01 \
    --deepspeed conf/zero2.json
