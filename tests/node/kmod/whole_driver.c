// SPDX-License-Identifier: GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "whole_driver.h"

#include <linux/module.h>
#include <linux/pci.h>

#include "roles.h"

/* A VF is taken too, as by a driver of the host that can use one. */
static int whole_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	if (role_of(pdev->is_virtfn ? pci_physfn(pdev) : pdev) != ROLE_SRIOV_WHOLE)
		return -ENODEV;
	return pdev->is_virtfn ? 0 : pci_enable_device(pdev);
}

static void whole_remove(struct pci_dev *pdev)
{
	if (pdev->is_virtfn)
		return;
	pci_disable_sriov(pdev);
	pci_disable_device(pdev);
}

/* Display devices of the vendor whose IDs are worn; which of them are taken is for probe to say. */
static const struct pci_device_id whole_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_INTEL, PCI_ANY_ID), PCI_BASE_CLASS_DISPLAY << 16, 0xff0000 },
	{},
};

static struct pci_driver whole_driver = {
	.name = "xe",
	.id_table = whole_ids,
	.probe = whole_probe,
	.remove = whole_remove,
	.sriov_configure = pci_sriov_configure_simple,
};

int register_whole_driver(void)
{
	return pci_register_driver(&whole_driver);
}

void unregister_whole_driver(void)
{
	pci_unregister_driver(&whole_driver);
}
