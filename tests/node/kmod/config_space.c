// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "config_space.h"

#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "address.h"

struct ids {
	u16 vendor;
	u16 device;
	u16 subsystem_vendor;
	u16 subsystem_device;
	u32 class; /* base class, sub-class, programming interface: 24 bits, as in struct pci_dev */
};

struct costume {
	struct pci_address address;
	struct ids ids;
	struct ids own; /* valid while worn */
	struct pci_dev *wearer; /* valid while worn */
	bool wearer_is_vf;
	bool worn; /* read without a lock by config accesses; written last */
};

static struct costume *costumes;
static unsigned int num_costumes;
static DEFINE_MUTEX(costume_lock);

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

static struct costume *costume_for(const struct pci_address *address)
{
	unsigned int i;

	for (i = 0; i < num_costumes; i++)
		if (same_address(&costumes[i].address, address))
			return &costumes[i];
	return NULL;
}

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

static int mask_bus(struct pci_bus *bus)
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
static void unmask_all_buses(void)
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

static struct ids ids_of(const struct pci_dev *pdev)
{
	return (struct ids){ pdev->vendor, pdev->device, pdev->subsystem_vendor, pdev->subsystem_device,
			     pdev->class };
}

static void set_ids(struct pci_dev *pdev, const struct ids *ids)
{
	pdev->vendor = ids->vendor;
	pdev->device = ids->device;
	pdev->subsystem_vendor = ids->subsystem_vendor;
	pdev->subsystem_device = ids->subsystem_device;
	pdev->class = ids->class;
}

static int put_on(struct costume *costume, struct pci_dev *pdev)
{
	int ret;

	lockdep_assert_held(&costume_lock);
	if (costume->worn)
		return 0;
	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL) {
		pci_err(pdev, KBUILD_MODNAME ": ids: this is a bridge; only an endpoint can wear IDs\n");
		return -EINVAL;
	}
	ret = mask_bus(pdev->bus);
	if (ret)
		return ret;
	costume->own = ids_of(pdev);
	costume->wearer = pdev;
	costume->wearer_is_vf = pdev->is_virtfn;
	set_ids(pdev, &costume->ids);
	smp_store_release(&costume->worn, true);
	pci_info(pdev, KBUILD_MODNAME ": wears %04x:%04x, subsystem %04x:%04x, class %06x\n", pdev->vendor,
		 pdev->device, pdev->subsystem_vendor, pdev->subsystem_device, pdev->class);
	return 0;
}

static int on_bus_event(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct pci_address address = address_of(pdev);
	struct costume *costume;

	if (action != BUS_NOTIFY_ADD_DEVICE && action != BUS_NOTIFY_REMOVED_DEVICE)
		return NOTIFY_DONE;
	mutex_lock(&costume_lock);
	costume = costume_for(&address);
	if (costume && action == BUS_NOTIFY_ADD_DEVICE)
		put_on(costume, pdev);
	else if (costume && costume->wearer == pdev)
		WRITE_ONCE(costume->worn, false);
	mutex_unlock(&costume_lock);
	return NOTIFY_DONE;
}

/* First in the chain: the VGA arbiter, another listener, goes by the class. */
static struct notifier_block bus_notifier = {
	.notifier_call = on_bus_event,
	.priority = INT_MAX,
};

static int parse_request(const char *request, struct costume *costume)
{
	u32 vendor, device, subsystem_vendor, subsystem_device, class;
	const char *text = parse_address(request, &costume->address);

	if (!text || *text != '=')
		goto malformed;
	text = parse_hex(text + 1, 4, ':', &vendor);
	text = text ? parse_hex(text, 4, ':', &device) : NULL;
	text = text ? parse_hex(text, 4, ':', &subsystem_vendor) : NULL;
	text = text ? parse_hex(text, 4, ':', &subsystem_device) : NULL;
	text = text ? parse_hex(text, 6, '\0', &class) : NULL;
	if (!text || *text != '\0')
		goto malformed;
	if (costume_for(&costume->address)) {
		pr_err("ids: \"%s\": this address is named twice\n", request);
		return -EINVAL;
	}
	costume->ids = (struct ids){ vendor, device, subsystem_vendor, subsystem_device, class };
	return 0;

malformed:
	pr_err("ids: \"%s\" is not DDDD:BB:SS.F=VVVV:DDDD:SVSV:SDSD:CCCCCC (hexadecimal, every digit)\n",
	       request);
	return -EINVAL;
}

/* The VGA arbiter knows the VGA devices it saw arrive, and vfio-pci asks it about every device of that class.
 */
static void warn_if_unknown_to_vga_arbiter(struct pci_dev *pdev, const struct costume *costume)
{
	if (costume->ids.class >> 8 == PCI_CLASS_DISPLAY_VGA &&
	    costume->own.class >> 8 != PCI_CLASS_DISPLAY_VGA)
		pci_warn(pdev,
			 KBUILD_MODNAME ": vfio-pci will refuse it: it was not found as a VGA device\n");
}

static int put_on_present(struct costume *costume)
{
	const struct pci_address *address = &costume->address;
	struct pci_dev *pdev;
	int ret;

	mutex_lock(&costume_lock);
	pdev = pci_get_domain_bus_and_slot(address->domain, address->bus, address->devfn);
	if (pdev) {
		ret = put_on(costume, pdev);
		if (!ret)
			warn_if_unknown_to_vga_arbiter(pdev, costume);
		pci_dev_put(pdev);
	} else {
		pr_info("ids: nothing at " PCI_ADDRESS_FORMAT " yet\n", PCI_ADDRESS_ARGS(address));
		ret = 0;
	}
	mutex_unlock(&costume_lock);
	return ret;
}

int wear_ids(char **requests, unsigned int count)
{
	unsigned int i;
	int ret;

	costumes = kcalloc(max(count, 1u), sizeof(*costumes), GFP_KERNEL);
	if (!costumes)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		ret = parse_request(requests[i], &costumes[i]);
		if (ret) {
			kfree(costumes);
			return ret;
		}
		num_costumes++;
	}

	bus_register_notifier(&pci_bus_type, &bus_notifier);
	for (i = 0; i < count; i++) {
		ret = put_on_present(&costumes[i]);
		if (ret) {
			restore_ids();
			return ret;
		}
	}
	return 0;
}

void restore_ids(void)
{
	unsigned int i;

	/* A wearer cannot go away before its removal was announced, and the notifier waits for the lock. */
	mutex_lock(&costume_lock);
	for (i = 0; i < num_costumes; i++)
		if (costumes[i].worn)
			set_ids(costumes[i].wearer, &costumes[i].own);
	num_costumes = 0;
	mutex_unlock(&costume_lock);
	bus_unregister_notifier(&pci_bus_type, &bus_notifier);

	pci_lock_rescan_remove();
	unmask_all_buses();
	pci_unlock_rescan_remove();
	kfree(costumes);
}
