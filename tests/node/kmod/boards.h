/* SPDX-License-Identifier: GPL-2.0 */
/* The boards this module plays, by the device ID that a function wears, and their vGPU types. */
#ifndef FERRY_BOARDS_H
#define FERRY_BOARDS_H

#include <linux/types.h>

struct vgpu_spec {
	unsigned int id; /* as in nvidia-<id>, and in current_vgpu_type */
	const char *name; /* as in the type's file name */
	unsigned int framebuffer_mib;
	unsigned int max_instance; /* on an empty GPU */
	unsigned int num_heads;
	unsigned int frame_rate_limit; /* frames per second */
	const char *max_resolution;
	u16 subsystem_device; /* what the guest sees */
};

struct board {
	u16 device; /* 10de:<device> */
	const struct vgpu_spec *specs;
	unsigned int num_specs;
	bool has_placements; /* vGPUs have their place in memory, which can be chosen (Ada and newer) */
};

/* Those of 10de:@device; those of a T4 if it is none of the boards. */
const struct board *board_of(u16 device);

/* NULL if the board has no such type. */
const struct vgpu_spec *find_spec(const struct board *board, unsigned int id);

#endif
