// SPDX-License-Identifier: GPL-2.0
#include "boards.h"

#include <linux/kernel.h>

/*
 * 10de:1eb8, 16 GiB. Names and subsystem IDs are the driver's. No public table gives the numbers of these
 * types, and NVIDIA promises none: users resolve names on the host.
 */
static const struct vgpu_spec t4_specs[] = {
	{ 222, "GRID T4-1B", 1024, 16, 4, 45, "5120x2880", 0x1309 },
	{ 223, "GRID T4-2B", 2048, 8, 4, 45, "5120x2880", 0x130a },
	{ 225, "GRID T4-1A", 1024, 16, 1, 60, "1280x1024", 0x1311 },
	{ 226, "GRID T4-2A", 2048, 8, 1, 60, "1280x1024", 0x1312 },
	{ 230, "GRID T4-1Q", 1024, 16, 4, 60, "5120x2880", 0x130c },
	{ 231, "GRID T4-2Q", 2048, 8, 4, 60, "7680x4320", 0x130d },
	{ 232, "GRID T4-4Q", 4096, 4, 4, 60, "7680x4320", 0x130e },
	{ 233, "GRID T4-8Q", 8192, 2, 4, 60, "7680x4320", 0x130f },
	{ 234, "GRID T4-16Q", 16384, 1, 4, 60, "7680x4320", 0x1310 },
	{ 319, "GRID T4-4C", 4096, 4, 1, 60, "4096x2160", 0x139a },
	{ 320, "GRID T4-8C", 8192, 2, 1, 60, "4096x2160", 0x139b },
	{ 321, "GRID T4-16C", 16384, 1, 1, 60, "4096x2160", 0x1375 },
};

/* 10de:26b9, 48 GiB. Numbers of the C types are not public; here they go on with the others' series. */
static const struct vgpu_spec l40s_specs[] = {
	{ 1145, "NVIDIA L40S-1B", 1024, 32, 4, 45, "5120x2880", 0x1889 },
	{ 1146, "NVIDIA L40S-2B", 2048, 24, 4, 45, "5120x2880", 0x188a },
	{ 1147, "NVIDIA L40S-1Q", 1024, 32, 4, 60, "5120x2880", 0x188b },
	{ 1148, "NVIDIA L40S-2Q", 2048, 24, 4, 60, "7680x4320", 0x188c },
	{ 1149, "NVIDIA L40S-3Q", 3072, 16, 4, 60, "7680x4320", 0x188d },
	{ 1150, "NVIDIA L40S-4Q", 4096, 12, 4, 60, "7680x4320", 0x188e },
	{ 1151, "NVIDIA L40S-6Q", 6144, 8, 4, 60, "7680x4320", 0x188f },
	{ 1152, "NVIDIA L40S-8Q", 8192, 6, 4, 60, "7680x4320", 0x1890 },
	{ 1153, "NVIDIA L40S-12Q", 12288, 4, 4, 60, "7680x4320", 0x1891 },
	{ 1154, "NVIDIA L40S-16Q", 16384, 3, 4, 60, "7680x4320", 0x1892 },
	{ 1155, "NVIDIA L40S-24Q", 24576, 2, 4, 60, "7680x4320", 0x1893 },
	{ 1156, "NVIDIA L40S-48Q", 49152, 1, 4, 60, "7680x4320", 0x1894 },
	{ 1157, "NVIDIA L40S-1A", 1024, 32, 1, 60, "1280x1024", 0x1895 },
	{ 1158, "NVIDIA L40S-2A", 2048, 24, 1, 60, "1280x1024", 0x1896 },
	{ 1159, "NVIDIA L40S-3A", 3072, 16, 1, 60, "1280x1024", 0x1897 },
	{ 1160, "NVIDIA L40S-4A", 4096, 12, 1, 60, "1280x1024", 0x1898 },
	{ 1179, "NVIDIA L40S-4C", 4096, 12, 1, 60, "4096x2160", 0x18ab },
	{ 1180, "NVIDIA L40S-6C", 6144, 8, 1, 60, "4096x2160", 0x18ac },
	{ 1181, "NVIDIA L40S-8C", 8192, 6, 1, 60, "4096x2160", 0x18ad },
	{ 1182, "NVIDIA L40S-12C", 12288, 4, 1, 60, "4096x2160", 0x18ae },
	{ 1183, "NVIDIA L40S-16C", 16384, 3, 1, 60, "4096x2160", 0x18af },
	{ 1184, "NVIDIA L40S-24C", 24576, 2, 1, 60, "4096x2160", 0x18b0 },
	{ 1185, "NVIDIA L40S-48C", 49152, 1, 1, 60, "4096x2160", 0x18b1 },
};

static const struct board boards[] = {
	{ 0x1eb8, t4_specs, ARRAY_SIZE(t4_specs), false },
	{ 0x26b9, l40s_specs, ARRAY_SIZE(l40s_specs), true },
};

const struct board *board_of(u16 device)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(boards); i++)
		if (boards[i].device == device)
			return &boards[i];
	return &boards[0];
}

const struct vgpu_spec *find_spec(const struct board *board, unsigned int id)
{
	unsigned int i;

	for (i = 0; i < board->num_specs; i++)
		if (board->specs[i].id == id)
			return &board->specs[i];
	return NULL;
}
