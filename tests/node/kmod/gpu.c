// SPDX-License-Identifier: GPL-2.0
#include "gpu.h"

#include <linux/bitops.h>
#include <linux/slab.h>

struct gpu *alloc_gpu(struct pci_dev *pdev)
{
	struct gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);

	if (!gpu)
		return NULL;
	gpu->pdev = pdev;
	gpu->board = board_of(pdev->device);
	mutex_init(&gpu->lock);
	return gpu;
}

void free_gpu(struct gpu *gpu)
{
	kfree(gpu);
}

unsigned int room_locked(const struct place *place, const struct vgpu_spec *spec)
{
	const struct gpu *gpu = place->gpu;
	unsigned int room;

	lockdep_assert_held(&gpu->lock);
	if (gpu->num_vgpus && gpu->framebuffer_mib != spec->framebuffer_mib)
		return 0;
	room = spec->max_instance - min(gpu->num_vgpus, spec->max_instance);
	return place->most ? min(room, place->most - place->num_vgpus) : room;
}

unsigned int room_at(struct place *place, const struct vgpu_spec *spec)
{
	unsigned int room;

	mutex_lock(&place->gpu->lock);
	room = room_locked(place, spec);
	mutex_unlock(&place->gpu->lock);
	return room;
}

int take_room_locked(struct place *place, const struct vgpu_spec *spec)
{
	struct gpu *gpu = place->gpu;
	unsigned int placement;

	if (!room_locked(place, spec))
		return -ENOSPC;
	placement = ffz(gpu->placements);
	gpu->placements |= BIT_ULL(placement);
	gpu->framebuffer_mib = spec->framebuffer_mib;
	gpu->num_vgpus++;
	place->num_vgpus++;
	return placement;
}

void give_room_back_locked(struct place *place, unsigned int placement)
{
	struct gpu *gpu = place->gpu;

	lockdep_assert_held(&gpu->lock);
	gpu->placements &= ~BIT_ULL(placement);
	gpu->num_vgpus--;
	place->num_vgpus--;
}

int move_placement_locked(struct gpu *gpu, const struct vgpu_spec *spec, unsigned int from, unsigned int to)
{
	lockdep_assert_held(&gpu->lock);
	if (to >= spec->max_instance || (to != from && gpu->placements & BIT_ULL(to)))
		return -EINVAL;
	gpu->placements &= ~BIT_ULL(from);
	gpu->placements |= BIT_ULL(to);
	return 0;
}

int open_vgpu_locked(struct gpu *gpu)
{
	lockdep_assert_held(&gpu->lock);
	if (gpu->unbind_locked)
		return -ENODEV;
	gpu->num_open++;
	return 0;
}

void close_vgpu_locked(struct gpu *gpu)
{
	lockdep_assert_held(&gpu->lock);
	gpu->num_open--;
}
