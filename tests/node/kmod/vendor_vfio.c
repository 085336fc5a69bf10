// SPDX-License-Identifier: GPL-2.0
#include "vendor_vfio.h"

#include <linux/uaccess.h>
#include <linux/vfio.h>

#include "vgpu_pci.h"

static struct vendor_vf *to_vf(struct vfio_device *vdev)
{
	return container_of(vdev, struct vendor_vf, core.vdev);
}

struct vendor_vf *vendor_vf_of(struct pci_dev *pdev)
{
	return container_of(pci_get_drvdata(pdev), struct vendor_vf, core);
}

/* -ENODEV without a vGPU. */
static int take(struct vendor_vf *vf)
{
	struct gpu *gpu = vf->place.gpu;
	int ret;

	mutex_lock(&gpu->lock);
	ret = vf->spec ? open_vgpu_locked(gpu) : -ENODEV;
	if (!ret)
		vf->open = true;
	mutex_unlock(&gpu->lock);
	return ret;
}

static void leave(struct vendor_vf *vf)
{
	struct gpu *gpu = vf->place.gpu;

	mutex_lock(&gpu->lock);
	vf->open = false;
	close_vgpu_locked(gpu);
	mutex_unlock(&gpu->lock);
}

static int vendor_open(struct vfio_device *vdev)
{
	struct vendor_vf *vf = to_vf(vdev);
	int ret = take(vf);

	if (ret)
		return ret;
	ret = vfio_pci_core_enable(&vf->core);
	if (ret) {
		leave(vf);
		return ret;
	}
	vfio_pci_core_finish_enable(&vf->core);
	return 0;
}

static void vendor_close(struct vfio_device *vdev)
{
	vfio_pci_core_close_device(vdev);
	leave(to_vf(vdev));
}

/* What the VM reads of a vGPU's identity; all else is the VF's own. @ids: the config space's first 64 bytes. */
static void put_ids(const struct vendor_vf *vf, u8 *ids, u8 *given)
{
	const u32 class = PCI_CLASS_DISPLAY_VGA << 16 | VGPU_REVISION;
	const u32 subsystem = (u32)vf->spec->subsystem_device << 16 | PCI_VENDOR_ID_NVIDIA;

	*(__le32 *)(ids + PCI_CLASS_REVISION) = cpu_to_le32(class);
	*(__le32 *)(ids + PCI_SUBSYSTEM_VENDOR_ID) = cpu_to_le32(subsystem);
	memset(given + PCI_CLASS_REVISION, 1, 4);
	memset(given + PCI_SUBSYSTEM_VENDOR_ID, 1, 4);
}

static ssize_t vendor_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	const u64 at = *ppos & VFIO_PCI_OFFSET_MASK;
	const bool is_config = VFIO_PCI_OFFSET_TO_INDEX(*ppos) == VFIO_PCI_CONFIG_REGION_INDEX;
	u8 ids[PCI_STD_HEADER_SIZEOF], given[PCI_STD_HEADER_SIZEOF] = {};
	ssize_t done = vfio_pci_core_read(vdev, buf, count, ppos);
	ssize_t i;

	if (!is_config || done <= 0 || at >= PCI_STD_HEADER_SIZEOF)
		return done;
	put_ids(to_vf(vdev), ids, given);
	for (i = 0; i < done && at + i < PCI_STD_HEADER_SIZEOF; i++)
		if (given[at + i] && put_user(ids[at + i], (u8 __user *)buf + i))
			return -EFAULT;
	return done;
}

static const struct vfio_device_ops vendor_ops = {
	.name = "nvidia-vgpu-vfio-pci",
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = vendor_open,
	.close_device = vendor_close,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vendor_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
};

int probe_vendor_vf(struct gpu *gpu, struct pci_dev *pdev)
{
	struct vendor_vf *vf = vfio_alloc_device(vendor_vf, core.vdev, &pdev->dev, &vendor_ops);
	int ret;

	if (IS_ERR(vf))
		return PTR_ERR(vf);
	vf->place = (struct place){ .gpu = gpu, .most = 1 };
	pci_set_drvdata(pdev, &vf->core); /* as vfio-pci-core wants it */
	ret = vfio_pci_core_register_device(&vf->core);
	if (ret)
		goto put;
	ret = device_add_group(&pdev->dev, &vendor_group);
	if (ret)
		goto unregister;
	return 0;

unregister:
	vfio_pci_core_unregister_device(&vf->core);
put:
	vfio_put_device(&vf->core.vdev);
	return ret;
}

void remove_vendor_vf(struct pci_dev *pdev)
{
	struct vendor_vf *vf = vendor_vf_of(pdev);
	struct gpu *gpu = vf->place.gpu;

	/* First, so that no vGPU is made on a VF that goes. */
	device_remove_group(&pdev->dev, &vendor_group);
	vfio_pci_core_unregister_device(&vf->core);
	mutex_lock(&gpu->lock);
	if (vf->spec)
		give_room_back_locked(&vf->place, vf->placement);
	mutex_unlock(&gpu->lock);
	vfio_put_device(&vf->core.vdev);
}
