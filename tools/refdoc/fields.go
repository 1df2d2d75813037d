package main

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"loxilb/internal/lb"
	"loxilb/tools/markdown"
)

const fieldsHead = `<!-- Generated from internal/lb by tools/refdoc (make generate). Do not edit. -->

# Fields of a service

Each field of a service: its flag of ` + "`loxicmd create lb`" + `, and its property in JSON and YAML
([configuration.md](configuration.md)), in ` + "`serviceArguments`" + ` unless written with /. Unless stated,
the default is empty, 0, or the word in bold. Words with - are not part of this build.
[api/openapi.yaml](../api/openapi.yaml) has types and bounds of properties,
[man/loxicmd.1](man/loxicmd.1) those of flags.
`

// pageOf returns the page that explains the words of a field, or "".
func pageOf(field string) string {
	return map[string]string{"mode": "modes.md", "select": "algorithms.md", "probe type": "probes.md"}[field]
}

// schemas are the API's schemas, whose descriptions are used for fields without a flag's help.
type schemas map[string]struct {
	Properties map[string]struct {
		Description string `json:"description"`
	} `json:"properties"`
}

// fields returns the page.
func fields(openapi string) (string, error) {
	var spec struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := yaml.Unmarshal([]byte(openapi), &spec); err != nil {
		return "", fmt.Errorf("api/openapi.yaml: %w", err)
	}
	api := spec.Components.Schemas
	var b strings.Builder
	b.WriteString(fieldsHead)
	b.WriteString("\n## Which packets\n\n" + items(lb.KeyFields(), api))
	b.WriteString("\n## Endpoints\n\nFor each entry of `endpoints`; on the command line `IP:WEIGHT` or `IP:PORT:WEIGHT`, followed by\n`@LEVEL` for a backup.\n\n" + items(lb.EndpointFields(), api))
	b.WriteString("\n## Settings\n\n" + items(lb.Fields(), api))
	return b.String(), nil
}

func items[T any](list []lb.Field[T], api schemas) string {
	var b strings.Builder
	for _, f := range list {
		name := "`/" + f.Property + "`"
		if arg, is := strings.CutPrefix(f.Property, "serviceArguments."); is {
			name = "`" + arg + "`"
		}
		if f.Flag != "" {
			name = "`--" + f.Flag + "`, " + name
		} else if says := api.says(f.Property); says != "" {
			f.Help, f.Allowed = says, ""
		}
		b.WriteString(markdown.Item(name + ": " + meaning(&f)))
	}
	return b.String()
}

// says returns the API's description of a property.
func (s schemas) says(property string) string {
	name, arg, is := strings.Cut(property, ".")
	for _, schema := range []string{"LoadbalanceEntry", "Endpoint"} {
		if d := s[schema].Properties[name].Description; d != "" {
			return inOneLine(d)
		}
	}
	if is {
		return inOneLine(s["ServiceArguments"].Properties[arg].Description)
	}
	return ""
}

func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// meaning returns the help of a field, its form, and its words.
func meaning[T any](f *lb.Field[T]) string {
	text := strings.TrimSuffix(f.Help, ".")
	if f.Allowed != "" {
		text += "; " + regexp.MustCompile(`^0 \([^)]*\) to `).ReplaceAllString(f.Allowed, "at most ") // the help explains 0
	}
	page := pageOf(f.Name)
	var words []string
	var zero T
	for _, c := range f.Choices() {
		word := "`" + c.Word + "`"
		switch {
		case !c.Available:
			word += " -"
		case c.Word == f.Show(&zero):
			word = "**" + word + "**" + help(c, page)
		default:
			word += help(c, page)
		}
		if f.Numbered {
			word = fmt.Sprintf("%d ", c.Number) + word
		}
		words = append(words, word)
	}
	if page != "" {
		text += " ([explained](" + page + "))"
	}
	switch {
	case len(words) == 0:
	case page != "":
		text += ": " + strings.Join(words, ", ")
	default:
		text += ". " + strings.Join(words, "; ")
	}
	return text
}

func help(c lb.Choice, page string) string {
	if c.Help == "" || page != "" {
		return ""
	}
	return ": " + c.Help
}
