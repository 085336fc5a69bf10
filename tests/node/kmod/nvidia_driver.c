// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "nvidia_driver.h"

#include <linux/module.h>
#include <linux/pci.h>

#include "dma_ownership.h"
#include "faults.h"
#include "gpu.h"
#include "mdev_parent.h"
#include "roles.h"
#include "unbind_lock.h"
#include "vendor_vfio.h"

static bool vfs_need_lock;
module_param(vfs_need_lock, bool, 0644);
MODULE_PARM_DESC(vfs_need_lock, "sriov_numvfs is refused with EPERM unless the unbind lock is held");

/* A function's driver data: of a physical function the GPU, of its VFs what their role makes of them. */

static bool has_vfs(enum role role)
{
	return role == ROLE_SRIOV_MDEV || role == ROLE_SRIOV_VFIO;
}

static bool is_vendor_vf(struct pci_dev *pdev)
{
	return pdev->is_virtfn && role_of(pci_physfn(pdev)) == ROLE_SRIOV_VFIO;
}

/* As NVIDIA's driver for vGPU hosts, which has one flag for all of its functions. */
static bool leaves_dma(struct pci_dev *pdev)
{
	return role_of(pdev->is_virtfn ? pci_physfn(pdev) : pdev) == ROLE_SRIOV_VFIO;
}

static int probe_vf(struct pci_dev *pdev)
{
	struct pci_dev *physfn = pci_physfn(pdev);
	const enum role role = role_of(physfn);
	struct mdev_gpu_parent *parent;
	struct gpu *gpu;

	/* As a driver without vGPU support says, which is what it is then. */
	if (!has_vfs(role) || physfn->dev.driver != pdev->dev.driver) {
		pci_info(pdev, KBUILD_MODNAME ": Ignoring probe for VF\n");
		return -ENODEV;
	}
	gpu = pci_get_drvdata(physfn);
	if (role == ROLE_SRIOV_VFIO)
		return probe_vendor_vf(gpu, pdev);
	parent = offer_mdevs(gpu, pdev, 1);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	pci_set_drvdata(pdev, parent);
	return 0;
}

static void remove_vf(struct pci_dev *pdev)
{
	if (is_vendor_vf(pdev))
		remove_vendor_vf(pdev);
	else
		withdraw_mdevs(pci_get_drvdata(pdev));
}

static int start_gpu(struct gpu *gpu, enum role role)
{
	int ret;

	if (role == ROLE_HOST)
		return 0;
	ret = add_unbind_lock(gpu);
	if (ret || role != ROLE_MDEV)
		return ret;
	gpu->parent = offer_mdevs(gpu, gpu->pdev, 0);
	if (IS_ERR(gpu->parent)) {
		remove_unbind_lock(gpu);
		return PTR_ERR(gpu->parent);
	}
	return 0;
}

static int probe_gpu(struct pci_dev *pdev)
{
	const enum role role = role_of(pdev);
	struct gpu *gpu;
	int ret;

	if (role == ROLE_NONE)
		return -ENODEV;
	ret = fault_in_probe(pdev);
	if (ret)
		return ret;
	ret = pci_enable_device(pdev);
	if (ret)
		return ret;
	gpu = alloc_gpu(pdev);
	ret = gpu ? start_gpu(gpu, role) : -ENOMEM;
	if (ret) {
		free_gpu(gpu);
		pci_disable_device(pdev);
		return ret;
	}
	pci_set_drvdata(pdev, gpu);
	return 0;
}

static void remove_gpu(struct pci_dev *pdev)
{
	struct gpu *gpu = pci_get_drvdata(pdev);

	fault_in_remove(pdev);
	pci_disable_sriov(pdev);
	if (gpu->parent)
		withdraw_mdevs(gpu->parent);
	remove_unbind_lock(gpu);
	free_gpu(gpu);
	pci_disable_device(pdev);
}

static int nvidia_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return pdev->is_virtfn ? probe_vf(pdev) : probe_gpu(pdev);
}

static void nvidia_remove(struct pci_dev *pdev)
{
	if (pdev->is_virtfn)
		remove_vf(pdev);
	else
		remove_gpu(pdev);
}

/* A T4's answer too, whatever its sriov_totalvfs. */
static int nvidia_sriov_configure(struct pci_dev *pdev, int num_vfs)
{
	struct gpu *gpu = pci_get_drvdata(pdev);
	int ret;

	if (!has_vfs(role_of(pdev)) || (vfs_need_lock && !holds_unbind_lock(gpu)))
		return -EPERM;
	ret = fault_in_sriov(pdev);
	if (ret)
		return ret;
	if (!num_vfs) {
		pci_disable_sriov(pdev);
		return 0;
	}
	ret = pci_enable_sriov(pdev, num_vfs);
	return ret ? ret : num_vfs;
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
	.sriov_configure = nvidia_sriov_configure,
};

int register_nvidia_driver(void)
{
	int ret = assign_roles();

	if (ret)
		return ret;
	ret = add_driver_folder();
	if (ret)
		return ret;
	ret = watch_dma(&nvidia_driver, leaves_dma);
	if (!ret) {
		ret = pci_register_driver(&nvidia_driver);
		if (ret)
			unwatch_dma();
	}
	if (ret)
		remove_driver_folder();
	return ret;
}

void unregister_nvidia_driver(void)
{
	pci_unregister_driver(&nvidia_driver);
	unwatch_dma();
	remove_driver_folder();
}
