// SPDX-License-Identifier: GPL-2.0
#include "vgpu_pci.h"

#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vfio.h>

#define BAR0_SIZE 0x4000

/* The region's index is in the upper bits of a file offset, as in vfio-pci. */
#define REGION_SHIFT 40
#define REGION_OFFSET(index) ((u64)(index) << REGION_SHIFT)

struct region {
	u8 *data;
	size_t size;
};

static struct region region_at(struct vgpu_pci *pci, u32 index)
{
	switch (index) {
	case VFIO_PCI_CONFIG_REGION_INDEX:
		return (struct region){ pci->config, VGPU_CONFIG_SIZE };
	case VFIO_PCI_BAR0_REGION_INDEX:
		return (struct region){ pci->bar0, BAR0_SIZE };
	default:
		return (struct region){ NULL, 0 };
	}
}

static void put_le16(u8 *bytes, u16 value)
{
	*(__le16 *)bytes = cpu_to_le16(value);
}

static void put_le32(u8 *bytes, u32 value)
{
	*(__le32 *)bytes = cpu_to_le32(value);
}

/* No interrupt pin and no capabilities: nothing here ever raises an interrupt. */
static void reset_locked(struct vgpu_pci *pci)
{
	memset(pci->config, 0, VGPU_CONFIG_SIZE);
	put_le16(pci->config + PCI_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put_le16(pci->config + PCI_DEVICE_ID, pci->device);
	put_le32(pci->config + PCI_CLASS_REVISION, PCI_CLASS_DISPLAY_VGA << 16 | VGPU_REVISION);
	put_le32(pci->config + PCI_BASE_ADDRESS_0,
		 PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_32);
	put_le16(pci->config + PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put_le16(pci->config + PCI_SUBSYSTEM_ID, pci->subsystem_device);
	memset(pci->bar0, 0, BAR0_SIZE);
}

/* With the address bits of a BAR below its size fixed to zero, sizing it needs no code of its own. */
static void set_writable(struct vgpu_pci *pci)
{
	put_le16(pci->writable + PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	put_le32(pci->writable + PCI_BASE_ADDRESS_0, ~(BAR0_SIZE - 1));
	pci->writable[PCI_CACHE_LINE_SIZE] = 0xff;
	pci->writable[PCI_INTERRUPT_LINE] = 0xff;
}

/* Finds the bytes at @pos and cuts @count to what the region holds. NULL if there is nothing at @pos. */
static u8 *bytes_at(struct vgpu_pci *pci, loff_t pos, size_t *count)
{
	const struct region region = region_at(pci, pos >> REGION_SHIFT);
	const u64 offset = pos & (REGION_OFFSET(1) - 1);

	if (offset >= region.size)
		return NULL;
	*count = min_t(size_t, *count, region.size - offset);
	return region.data + offset;
}

int init_vgpu_pci(struct vgpu_pci *pci, u16 device, u16 subsystem_device)
{
	pci->bar0 = kzalloc(BAR0_SIZE, GFP_KERNEL);
	if (!pci->bar0)
		return -ENOMEM;
	pci->device = device;
	pci->subsystem_device = subsystem_device;
	mutex_init(&pci->lock);
	set_writable(pci);
	reset_locked(pci);
	return 0;
}

void free_vgpu_pci(struct vgpu_pci *pci)
{
	kfree(pci->bar0);
}

void reset_vgpu_pci(struct vgpu_pci *pci)
{
	mutex_lock(&pci->lock);
	reset_locked(pci);
	mutex_unlock(&pci->lock);
}

ssize_t read_vgpu_pci(struct vgpu_pci *pci, char __user *buf, size_t count, loff_t *ppos)
{
	const u8 *from = bytes_at(pci, *ppos, &count);
	unsigned long left;

	if (!from)
		return -EINVAL;
	mutex_lock(&pci->lock);
	left = copy_to_user(buf, from, count);
	mutex_unlock(&pci->lock);
	if (left)
		return -EFAULT;
	*ppos += count;
	return count;
}

ssize_t write_vgpu_pci(struct vgpu_pci *pci, const char __user *buf, size_t count, loff_t *ppos)
{
	u8 *to = bytes_at(pci, *ppos, &count);
	u8 *data;
	size_t i;

	if (!to)
		return -EINVAL;
	data = memdup_user(buf, count);
	if (IS_ERR(data))
		return PTR_ERR(data);
	mutex_lock(&pci->lock);
	if (to >= pci->config && to < pci->config + VGPU_CONFIG_SIZE) {
		const u8 *writable = pci->writable + (to - pci->config);

		for (i = 0; i < count; i++)
			to[i] = (to[i] & ~writable[i]) | (data[i] & writable[i]);
	} else {
		memcpy(to, data, count);
	}
	mutex_unlock(&pci->lock);
	kfree(data);
	*ppos += count;
	return count;
}

static long get_info(void __user *arg)
{
	const size_t size = offsetofend(struct vfio_device_info, num_irqs);
	struct vfio_device_info info;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_region_info(struct vgpu_pci *pci, void __user *arg)
{
	const size_t size = offsetofend(struct vfio_region_info, offset);
	struct vfio_region_info info;
	struct region region;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	region = region_at(pci, info.index);
	info.flags = region.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	info.cap_offset = 0;
	info.size = region.size;
	info.offset = REGION_OFFSET(info.index);
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_irq_info(void __user *arg)
{
	const size_t size = offsetofend(struct vfio_irq_info, count);
	struct vfio_irq_info info;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.flags = 0;
	info.count = 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

long vgpu_pci_ioctl(struct vgpu_pci *pci, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return get_info((void __user *)arg);
	case VFIO_DEVICE_GET_REGION_INFO:
		return get_region_info(pci, (void __user *)arg);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return get_irq_info((void __user *)arg);
	case VFIO_DEVICE_SET_IRQS:
		return -EINVAL; /* there are none */
	case VFIO_DEVICE_RESET:
		reset_vgpu_pci(pci);
		return 0;
	default:
		return -ENOTTY;
	}
}
