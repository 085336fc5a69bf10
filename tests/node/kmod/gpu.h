/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One GPU, a physical function on driver nvidia, and what its vGPUs share: its framebuffer, of which all take
 * pieces of one size, and its unbind lock.
 */
#ifndef FERRY_GPU_H
#define FERRY_GPU_H

#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/types.h>

#include "boards.h"

struct mdev_gpu_parent;

struct gpu {
	struct pci_dev *pdev;
	const struct board *board;
	struct mutex lock; /* the members below, and those of its places */
	unsigned int num_vgpus;
	unsigned int framebuffer_mib; /* of each vGPU; meaningless while there is none */
	u64 placements; /* bit n: the piece n of the framebuffer is taken */
	unsigned int num_open; /* vGPUs that a VM has */
	bool unbind_locked; /* by unbindLock: no VM gets a vGPU */
	struct proc_dir_entry *proc; /* its folder; NULL if it has none */
	struct mdev_gpu_parent *parent; /* where the GPU itself offers types; else NULL */
};

/* A function that vGPUs can be made on: the GPU itself, or one of its VFs. */
struct place {
	struct gpu *gpu;
	unsigned int most; /* so many vGPUs, whatever their size: 1 on a VF, 0 for no bound */
	unsigned int num_vgpus;
};

struct gpu *alloc_gpu(struct pci_dev *pdev);
void free_gpu(struct gpu *gpu);

/* How many vGPUs of @spec can be made at @place now. */
unsigned int room_at(struct place *place, const struct vgpu_spec *spec);

/*
 * The same, and what takes one and gives it back, with the GPU's lock held. take_room() returns the vGPU's
 * placement, the first one free, or -ENOSPC.
 */
unsigned int room_locked(const struct place *place, const struct vgpu_spec *spec);
int take_room_locked(struct place *place, const struct vgpu_spec *spec);
void give_room_back_locked(struct place *place, unsigned int placement);

/* Another placement for a vGPU of @spec, with the lock held: -EINVAL if it is taken or there is none such. */
int move_placement_locked(struct gpu *gpu, const struct vgpu_spec *spec, unsigned int from, unsigned int to);

/* A VM takes and leaves a vGPU, with the lock held. -ENODEV while the unbind lock is held. */
int open_vgpu_locked(struct gpu *gpu);
void close_vgpu_locked(struct gpu *gpu);

#endif
