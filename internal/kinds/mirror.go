package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb/policy"
)

// Mirror registers mirrors.
func Mirror() Kind[policy.Mirror, v1.Mirror] {
	words := Words{
		Name: "mirror", Document: MirrorDocument, Command: "mirror", Aliases: []string{"mirr", "mirrors"},
		List: "mirrAttr", Exported: true, Verified: true,
	}
	stored := asJSON(func(m policy.Mirror) string { return m.Name }, policy.Mirror.Validate)
	stored.Most = 1024
	return Kind[policy.Mirror, v1.Mirror]{
		Words:  words,
		Stored: attached(stored, words.Name, func(m policy.Mirror) policy.Attachment { return m.Attachment }),
	}
}
