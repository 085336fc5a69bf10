// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "config_space.h"

#include <linux/list.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "address.h"
#include "costume.h"

/*
 * One for each set of operations that was found on a bus. Buses point into it, those below a wrapped bus by
 * inheritance, so that nothing here refers to a bus and a bus may go away at any time.
 */
struct masked_ops {
	struct list_head node;
	struct pci_ops ops;
	struct pci_ops *real;
};

static LIST_HEAD(masked_ops_list);

/* Replaces those of the @width bytes of the register at @offset that lie within the @size bytes read at
 * @where. */
static void overlay(int where, int size, u32 *val, int offset, int width, u32 value)
{
	int i;

	for (i = 0; i < width; i++) {
		int shift = (offset + i - where) * 8;

		if (offset + i < where || offset + i >= where + size)
			continue;
		*val = (*val & ~(0xffu << shift)) | ((value >> (i * 8)) & 0xff) << shift;
	}
}

/* An unplugged device answers all ones, and whoever looks for it must go on seeing that. */
static bool is_present(struct pci_ops *real, struct pci_bus *bus, unsigned int devfn)
{
	u32 revision_and_class;

	return !real->read(bus, devfn, PCI_CLASS_REVISION, 4, &revision_and_class) &&
	       !PCI_POSSIBLE_ERROR(revision_and_class);
}

static int masked_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *val)
{
	struct pci_ops *ops = READ_ONCE(bus->ops);
	struct pci_address address;
	const struct costume *costume;
	struct pci_ops *real;
	int ret;

	/* The bus got its own operations back after our caller had looked. */
	if (ops->read != masked_read)
		return ops->read(bus, devfn, where, size, val);

	real = container_of(ops, struct masked_ops, ops)->real;
	ret = real->read(bus, devfn, where, size, val);
	if (ret || where > PCI_SUBSYSTEM_ID + 1)
		return ret;
	address = address_at(bus, devfn);
	costume = costume_for(&address);
	if (!costume || !smp_load_acquire(&costume->worn) || !is_present(real, bus, devfn))
		return ret;

	/* A VF's config space has no vendor and device ID (SR-IOV 3.4.1.1): users go by struct pci_dev. */
	if (!costume->wearer_is_vf) {
		overlay(where, size, val, PCI_VENDOR_ID, 2, costume->ids.vendor);
		overlay(where, size, val, PCI_DEVICE_ID, 2, costume->ids.device);
	}
	overlay(where, size, val, PCI_CLASS_PROG, 3, costume->ids.class);
	overlay(where, size, val, PCI_SUBSYSTEM_VENDOR_ID, 2, costume->ids.subsystem_vendor);
	overlay(where, size, val, PCI_SUBSYSTEM_ID, 2, costume->ids.subsystem_device);
	return ret;
}

int mask_bus(struct pci_bus *bus)
{
	struct masked_ops *masked;

	if (bus->ops->read == masked_read)
		return 0;
	list_for_each_entry(masked, &masked_ops_list, node)
		if (masked->real == bus->ops)
			goto found;

	masked = kzalloc(sizeof(*masked), GFP_KERNEL);
	if (!masked)
		return -ENOMEM;
	masked->real = bus->ops;
	masked->ops = *bus->ops;
	masked->ops.read = masked_read;
	list_add(&masked->node, &masked_ops_list);
found:
	pci_bus_set_ops(bus, &masked->ops);
	return 0;
}

static void unmask_bus(struct pci_bus *bus)
{
	if (bus && bus->ops->read == masked_read)
		pci_bus_set_ops(bus, container_of(bus->ops, struct masked_ops, ops)->real);
}

/* Every bus that can be masked has a function on it or hangs below one, as an empty slot below its port. */
void unmask_all_buses(void)
{
	struct pci_dev *pdev = NULL;
	struct masked_ops *masked, *next;

	for_each_pci_dev(pdev) {
		unmask_bus(pdev->bus);
		unmask_bus(pdev->subordinate);
	}
	/* In-kernel config accesses hold no lock that we could wait for; a tasks grace period ends them all.
	 */
	synchronize_rcu_tasks();
	synchronize_rcu();
	list_for_each_entry_safe(masked, next, &masked_ops_list, node) {
		list_del(&masked->node);
		kfree(masked);
	}
}
