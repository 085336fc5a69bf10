// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "vgpu_parent.h"

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "address.h"
#include "faults.h"
#include "types.h"
#include "vgpu_device.h"

struct vgpu_type {
	struct mdev_type type;
	const struct vgpu_spec *spec;
};

struct vgpu_parent {
	struct mdev_parent parent;
	struct pci_dev *pdev;
	struct mutex lock;
	unsigned int num_vgpus;
	unsigned int framebuffer_mib; /* of each vGPU: all have the same; meaningless while there is none */
	struct mdev_type **type_list;
	struct vgpu_type types[];
};

enum role { ROLE_NONE, ROLE_VGPU, ROLE_HOST };

struct assignment {
	struct pci_address address;
	enum role role;
};

static struct assignment *assignments;
static unsigned int num_assignments;

static struct vgpu_parent *parent_of(struct mdev_type *type)
{
	return container_of(type->parent, struct vgpu_parent, parent);
}

const struct vgpu_spec *vgpu_spec_of(struct mdev_type *type)
{
	return container_of(type, struct vgpu_type, type)->spec;
}

struct pci_dev *gpu_of(struct mdev_type *type)
{
	return parent_of(type)->pdev;
}

static unsigned int available_locked(const struct vgpu_parent *gpu, const struct vgpu_spec *spec)
{
	if (gpu->num_vgpus && gpu->framebuffer_mib != spec->framebuffer_mib)
		return 0;
	return max_instance(spec) - gpu->num_vgpus;
}

unsigned int available_vgpus(struct mdev_type *type)
{
	struct vgpu_parent *gpu = parent_of(type);
	unsigned int available;

	mutex_lock(&gpu->lock);
	available = available_locked(gpu, vgpu_spec_of(type));
	mutex_unlock(&gpu->lock);
	return available;
}

int reserve_vgpu(struct mdev_type *type)
{
	const struct vgpu_spec *spec = vgpu_spec_of(type);
	struct vgpu_parent *gpu = parent_of(type);
	int ret = -EINVAL;

	mutex_lock(&gpu->lock);
	if (available_locked(gpu, spec)) {
		gpu->framebuffer_mib = spec->framebuffer_mib;
		gpu->num_vgpus++;
		ret = 0;
	}
	mutex_unlock(&gpu->lock);
	return ret;
}

void release_vgpu(struct mdev_type *type)
{
	struct vgpu_parent *gpu = parent_of(type);

	mutex_lock(&gpu->lock);
	gpu->num_vgpus--;
	mutex_unlock(&gpu->lock);
}

static enum role role_of(struct pci_dev *pdev)
{
	const struct pci_address address = address_of(pdev);
	unsigned int i;

	for (i = 0; i < num_assignments; i++)
		if (same_address(&assignments[i].address, &address))
			return assignments[i].role;
	return ROLE_NONE;
}

static struct vgpu_parent *alloc_parent(struct pci_dev *pdev)
{
	struct vgpu_parent *gpu = kzalloc(struct_size(gpu, types, num_vgpu_specs), GFP_KERNEL);
	unsigned int i;

	if (!gpu)
		return NULL;
	gpu->type_list = kcalloc(num_vgpu_specs, sizeof(*gpu->type_list), GFP_KERNEL);
	if (!gpu->type_list) {
		kfree(gpu);
		return NULL;
	}
	gpu->pdev = pdev;
	mutex_init(&gpu->lock);
	for (i = 0; i < num_vgpu_specs; i++) {
		gpu->types[i].spec = &vgpu_specs[i];
		gpu->types[i].type.sysfs_name = vgpu_specs[i].id;
		gpu->types[i].type.pretty_name = vgpu_specs[i].name;
		gpu->type_list[i] = &gpu->types[i].type;
	}
	return gpu;
}

static void free_parent(struct vgpu_parent *gpu)
{
	kfree(gpu->type_list);
	kfree(gpu);
}

static int offer_vgpus(struct pci_dev *pdev)
{
	struct vgpu_parent *gpu = alloc_parent(pdev);
	int ret;

	if (!gpu)
		return -ENOMEM;
	ret = mdev_register_parent(&gpu->parent, &pdev->dev, &vgpu_mdev_driver, gpu->type_list,
				   num_vgpu_specs);
	if (ret) {
		free_parent(gpu);
		return ret;
	}
	pci_set_drvdata(pdev, gpu);
	return 0;
}

static int nvidia_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	enum role role = role_of(pdev);
	int ret;

	if (role == ROLE_NONE)
		return -ENODEV;
	ret = fault_in_probe(pdev);
	if (ret)
		return ret;
	ret = pci_enable_device(pdev);
	if (ret)
		return ret;
	if (role == ROLE_VGPU) {
		ret = offer_vgpus(pdev);
		if (ret)
			pci_disable_device(pdev);
	}
	return ret;
}

static void nvidia_remove(struct pci_dev *pdev)
{
	struct vgpu_parent *gpu = pci_get_drvdata(pdev);

	fault_in_remove(pdev);
	if (gpu) {
		mdev_unregister_parent(&gpu->parent);
		free_parent(gpu);
	}
	pci_disable_device(pdev);
}

/* Display devices of the vendor whose IDs are worn; which of them are taken is for probe to say. */
static const struct pci_device_id nvidia_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), PCI_BASE_CLASS_DISPLAY << 16, 0xff0000 },
	{},
};

static struct pci_driver nvidia_driver = {
	.name = "nvidia",
	.id_table = nvidia_ids,
	.probe = nvidia_probe,
	.remove = nvidia_remove,
};

static int assign(char **addresses, unsigned int count, enum role role, const char *parameter)
{
	struct pci_address address;
	unsigned int i, j;

	for (i = 0; i < count; i++) {
		if (!parse_whole_address(addresses[i], &address)) {
			pr_err("%s: \"%s\" is not a PCI address DDDD:BB:SS.F\n", parameter, addresses[i]);
			return -EINVAL;
		}
		for (j = 0; j < num_assignments; j++)
			if (same_address(&assignments[j].address, &address)) {
				pr_err("%s: \"%s\" is named twice in vgpu and host\n", parameter,
				       addresses[i]);
				return -EINVAL;
			}
		assignments[num_assignments++] = (struct assignment){ address, role };
	}
	return 0;
}

int register_nvidia_driver(char **vgpu, unsigned int num_vgpu, char **host, unsigned int num_host)
{
	int ret;

	assignments = kcalloc(max(num_vgpu + num_host, 1u), sizeof(*assignments), GFP_KERNEL);
	if (!assignments)
		return -ENOMEM;
	ret = assign(vgpu, num_vgpu, ROLE_VGPU, "vgpu");
	if (!ret)
		ret = assign(host, num_host, ROLE_HOST, "host");
	if (!ret)
		ret = pci_register_driver(&nvidia_driver);
	if (ret)
		kfree(assignments);
	return ret;
}

void unregister_nvidia_driver(void)
{
	pci_unregister_driver(&nvidia_driver);
	kfree(assignments);
}
