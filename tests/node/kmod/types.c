// SPDX-License-Identifier: GPL-2.0
#include "types.h"

#include <linux/kernel.h>

#define GPU_FRAMEBUFFER_MIB 16384

/*
 * Names and subsystem IDs are the driver's for device 10de:1eb8. No public table gives the numbers of these
 * types, and NVIDIA promises none: users resolve names on the host.
 */
const struct vgpu_spec vgpu_specs[] = {
	{ "222", "GRID T4-1B", 1024, 4, 45, "5120x2880", 0x1309 },
	{ "223", "GRID T4-2B", 2048, 4, 45, "5120x2880", 0x130a },
	{ "225", "GRID T4-1A", 1024, 1, 60, "1280x1024", 0x1311 },
	{ "226", "GRID T4-2A", 2048, 1, 60, "1280x1024", 0x1312 },
	{ "230", "GRID T4-1Q", 1024, 4, 60, "5120x2880", 0x130c },
	{ "231", "GRID T4-2Q", 2048, 4, 60, "7680x4320", 0x130d },
	{ "232", "GRID T4-4Q", 4096, 4, 60, "7680x4320", 0x130e },
	{ "233", "GRID T4-8Q", 8192, 4, 60, "7680x4320", 0x130f },
	{ "234", "GRID T4-16Q", 16384, 4, 60, "7680x4320", 0x1310 },
	{ "319", "GRID T4-4C", 4096, 1, 60, "4096x2160", 0x139a },
	{ "320", "GRID T4-8C", 8192, 1, 60, "4096x2160", 0x139b },
	{ "321", "GRID T4-16C", 16384, 1, 60, "4096x2160", 0x1375 },
};

const unsigned int num_vgpu_specs = ARRAY_SIZE(vgpu_specs);

unsigned int max_instance(const struct vgpu_spec *spec)
{
	return GPU_FRAMEBUFFER_MIB / spec->framebuffer_mib;
}
