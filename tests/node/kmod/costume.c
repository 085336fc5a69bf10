// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "costume.h"

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "config_space.h"

#define MOST_VFS 256

/*
 * Those that are named, then one for each address that a VF has had: an entry keeps its address, so that who
 * looks without a lock finds it or not, and never another one's.
 */
static struct costume *costumes;
static unsigned int num_costumes; /* written last */
static unsigned int most_costumes;
static DEFINE_MUTEX(costume_lock);

struct costume *costume_for(const struct pci_address *address)
{
	const unsigned int count = smp_load_acquire(&num_costumes);
	unsigned int i;

	for (i = 0; i < count; i++)
		if (same_address(&costumes[i].address, address))
			return &costumes[i];
	return NULL;
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

/* A new entry for a VF whose physical function wears IDs; NULL if that does not, or there is no room. */
static struct costume *costume_of_physfn(struct pci_dev *vf)
{
	const struct pci_address address = address_of(vf);
	const struct pci_address of_physfn = address_of(pci_physfn(vf));
	const struct costume *physfn = costume_for(&of_physfn);
	struct costume *costume = &costumes[num_costumes];

	lockdep_assert_held(&costume_lock);
	if (!physfn || !physfn->worn)
		return NULL;
	if (num_costumes == most_costumes) {
		pci_err(vf, KBUILD_MODNAME ": keeps its own IDs: %u virtual functions are too many\n",
			MOST_VFS);
		return NULL;
	}
	*costume = (struct costume){ .address = address, .ids = physfn->ids };
	smp_store_release(&num_costumes, num_costumes + 1);
	return costume;
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
	if (!costume && action == BUS_NOTIFY_ADD_DEVICE && pdev->is_virtfn)
		costume = costume_of_physfn(pdev);
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

	most_costumes = count + MOST_VFS;
	costumes = kcalloc(most_costumes, sizeof(*costumes), GFP_KERNEL);
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
