// Renders templates with consul-template itself. The argument is the fixture with the templates and their inputs; the program
// prints it with consul-template's answers: a text, or the stage that refused. Each template runs with and without
// error_on_missing_key. Nothing is read from a server: the inputs stand in consul-template's cache before the rendering.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	dep "github.com/hashicorp/consul-template/dependency"
	"github.com/hashicorp/consul-template/template"
)

type secret struct {
	Path          string          `json:"path"`
	Write         json.RawMessage `json:"write,omitempty"`
	LeaseID       string          `json:"lease_id,omitempty"`
	LeaseDuration int             `json:"lease_duration,omitempty"`
	Renewable     bool            `json:"renewable,omitempty"`
	Data          json.RawMessage `json:"data"`
}

type group struct {
	Name   string   `json:"name"`
	Before string   `json:"before,omitempty"`
	After  string   `json:"after,omitempty"`
	Cases  []answer `json:"cases"`
}

type fixture struct {
	Env     json.RawMessage     `json:"env"`
	Secrets []secret            `json:"secrets"`
	Lists   map[string][]string `json:"lists"`
	Files   map[string]string   `json:"files"`
	Groups  []group             `json:"groups"`
}

type answer struct {
	Template string `json:"template"`
	result
	// The result without error_on_missing_key, where it differs.
	Lenient *result `json:"lenient,omitempty"`
}

type result struct {
	Output *string `json:"output,omitempty"`
	// compile, render, or unresolved: a dependency is unknown.
	Refused string `json:"refused,omitempty"`
	// For the reader; tests compare the stage only.
	Reason string `json:"reason,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: consul-template FIXTURE")
	}
	raw, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err.Error())
	}
	given := new(fixture)
	decode(raw, given)
	for _, group := range given.Groups {
		for at := range group.Cases {
			one := &group.Cases[at]
			text := group.Before + one.Template + group.After
			lenient := render(given, text, false)
			one.result, one.Lenient = render(given, text, true), nil
			if !same(one.result, lenient) {
				one.Lenient = &lenient
			}
		}
	}
	lines := json.NewEncoder(os.Stdout)
	lines.SetEscapeHTML(false)
	lines.SetIndent("", " ")
	if err := lines.Encode(given); err != nil {
		fail(err.Error())
	}
}

func same(one, other result) bool {
	if one.Output != nil && other.Output != nil {
		return *one.Output == *other.Output
	}
	return one.Output == nil && other.Output == nil && one.Refused == other.Refused
}

func render(given *fixture, text string, strict bool) result {
	made, err := template.NewTemplate(&template.NewTemplateInput{Contents: text, ErrMissingKey: strict})
	if err != nil {
		return result{Refused: "compile", Reason: clean(err)}
	}
	values := map[string]string{}
	decode(given.Env, &values)
	env := []string{}
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	done, err := made.Execute(&template.ExecuteInput{Brain: brain(given), Env: env})
	if err != nil {
		stage := "render"
		if strings.HasPrefix(err.Error(), "parse: ") {
			stage = "compile"
		}
		return result{Refused: stage, Reason: clean(err)}
	}
	if done.Missing.Len() > 0 {
		return result{Refused: "unresolved"}
	}
	output := string(done.Output)
	return result{Output: &output}
}

func clean(err error) string {
	reason := err.Error()
	if cut := strings.LastIndex(reason, ">: "); cut >= 0 {
		reason = reason[cut+3:]
	}
	return reason
}

// Functions such as mergeMap change the values that they get, so that each rendering has its own. Numbers are json.Number, as
// Vault's client decodes them.
func brain(given *fixture) *template.Brain {
	brain := template.NewBrain()
	for _, one := range given.Secrets {
		value := &dep.Secret{LeaseID: one.LeaseID, LeaseDuration: one.LeaseDuration, Renewable: one.Renewable}
		decode(one.Data, &value.Data)
		if one.Write == nil {
			query, err := dep.NewVaultReadQuery(one.Path)
			remember(brain, query, err, value)
		} else {
			fields := map[string]interface{}{}
			decode(one.Write, &fields)
			query, err := dep.NewVaultWriteQuery(one.Path, fields)
			remember(brain, query, err, value)
		}
	}
	for path, names := range given.Lists {
		query, err := dep.NewVaultListQuery(path)
		remember(brain, query, err, names)
	}
	for path, text := range given.Files {
		query, err := dep.NewFileQuery(path)
		remember(brain, query, err, text)
	}
	return brain
}

func remember(brain *template.Brain, query dep.Dependency, err error, value interface{}) {
	if err != nil {
		fail(err.Error())
	}
	brain.Remember(query, value)
}

func decode(raw []byte, into interface{}) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		fail("the fixture: " + err.Error())
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
