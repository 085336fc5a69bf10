/* SPDX-License-Identifier: GPL-2.0 */
/* The vGPU types of the one GPU this module plays: a board with 16 GiB like the T4. */
#ifndef FERRY_TYPES_H
#define FERRY_TYPES_H

#include <linux/types.h>

struct vgpu_spec {
	const char *id; /* decimal, as in nvidia-<id> */
	const char *name; /* as in the type's file name */
	unsigned int framebuffer_mib;
	unsigned int num_heads;
	unsigned int frame_rate_limit; /* frames per second */
	const char *max_resolution;
	u16 subsystem_device; /* what the guest sees */
};

extern const struct vgpu_spec vgpu_specs[];
extern const unsigned int num_vgpu_specs;

/* How many vGPUs of this type fit an empty GPU. */
unsigned int max_instance(const struct vgpu_spec *spec);

#endif
