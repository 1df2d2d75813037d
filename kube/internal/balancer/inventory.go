package balancer

import "k8s.io/apimachinery/pkg/types"

// inventory has our services on a balancer by key. It also counts them by Service: thousands of
// deleted Services may ask repeatedly whether theirs are gone.
type inventory struct {
	entries  map[string]storedService
	services map[types.NamespacedName]int
}

func newInventory(size int) inventory {
	return inventory{make(map[string]storedService, size), map[types.NamespacedName]int{}}
}

// put adds or replaces an entry.
func (i *inventory) put(key string, p storedService) {
	i.remove(key)
	i.entries[key] = p
	i.services[p.service]++
}

// remove removes an entry and returns the Service that it belonged to.
func (i *inventory) remove(key string) types.NamespacedName {
	p, exists := i.entries[key]
	if !exists {
		return types.NamespacedName{}
	}
	delete(i.entries, key)
	if i.services[p.service]--; i.services[p.service] == 0 {
		delete(i.services, p.service)
	}
	return p.service
}

// has reports whether the inventory has an entry of a Service.
func (i *inventory) has(service types.NamespacedName) bool { return i.services[service] > 0 }
