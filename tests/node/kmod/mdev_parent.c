// SPDX-License-Identifier: GPL-2.0
#include "mdev_parent.h"

#include <linux/slab.h>

#include "vgpu_device.h"

#define ID_SIZE 12

struct parent_type {
	struct mdev_type type;
	const struct vgpu_spec *spec;
	char id[ID_SIZE];
};

struct mdev_gpu_parent {
	struct mdev_parent parent;
	struct place place;
	struct mdev_type **type_list;
	struct parent_type types[];
};

const struct vgpu_spec *spec_of(struct mdev_type *type)
{
	return container_of(type, struct parent_type, type)->spec;
}

struct place *place_of(struct mdev_type *type)
{
	return &container_of(type->parent, struct mdev_gpu_parent, parent)->place;
}

static struct mdev_gpu_parent *alloc_parent(struct gpu *gpu, unsigned int most)
{
	const struct board *board = gpu->board;
	struct mdev_gpu_parent *parent = kzalloc(struct_size(parent, types, board->num_specs), GFP_KERNEL);
	unsigned int i;

	if (!parent)
		return NULL;
	parent->type_list = kcalloc(board->num_specs, sizeof(*parent->type_list), GFP_KERNEL);
	if (!parent->type_list) {
		kfree(parent);
		return NULL;
	}
	parent->place = (struct place){ .gpu = gpu, .most = most };
	for (i = 0; i < board->num_specs; i++) {
		struct parent_type *one = &parent->types[i];

		one->spec = &board->specs[i];
		snprintf(one->id, sizeof(one->id), "%u", one->spec->id);
		one->type.sysfs_name = one->id;
		one->type.pretty_name = one->spec->name;
		parent->type_list[i] = &one->type;
	}
	return parent;
}

static void free_parent(struct mdev_gpu_parent *parent)
{
	kfree(parent->type_list);
	kfree(parent);
}

struct mdev_gpu_parent *offer_mdevs(struct gpu *gpu, struct pci_dev *pdev, unsigned int most)
{
	struct mdev_gpu_parent *parent = alloc_parent(gpu, most);
	int ret;

	if (!parent)
		return ERR_PTR(-ENOMEM);
	ret = mdev_register_parent(&parent->parent, &pdev->dev, &vgpu_mdev_driver, parent->type_list,
				   gpu->board->num_specs);
	if (ret) {
		free_parent(parent);
		return ERR_PTR(ret);
	}
	return parent;
}

void withdraw_mdevs(struct mdev_gpu_parent *parent)
{
	mdev_unregister_parent(&parent->parent);
	free_parent(parent);
}
