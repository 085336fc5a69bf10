/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /proc/driver/nvidia/gpus/ADDRESS/unbindLock, of GPUs whose driver can make vGPUs: 1 written takes the lock,
 * 0 gives it back. The write succeeds even if the lock was not taken; what is read then is 0. It is taken
 * while no VM has a vGPU of the GPU, and parameter refuse_lock does not name the GPU. While it is held no VM
 * gets one (ENODEV).
 */
#ifndef FERRY_UNBIND_LOCK_H
#define FERRY_UNBIND_LOCK_H

#include "gpu.h"

/* /proc/driver/nvidia/gpus */
int add_driver_folder(void);
void remove_driver_folder(void);

int add_unbind_lock(struct gpu *gpu);
void remove_unbind_lock(struct gpu *gpu); /* if it has one */
bool holds_unbind_lock(struct gpu *gpu);

#endif
