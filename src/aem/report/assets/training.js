// What happened while the networks were trained.
function showTraining() {
  const target = section("training");
  const own = record.training;
  if (own.missing) { target.append(paragraph(own.missing)); return; }
  const kept = own.kept ? (own.best_step ? ` The weights of step ${count(own.best_step)} were kept.` : "")
    : " Held-out rows gained nothing from the networks, so the mixture alone was kept.";
  target.append(paragraph(`Mean log density of held-out rows, estimated while training, as ${own.source} remembers it.` + kept +
    " The proposal is the mixture that the energy corrects." +
    (own.mixture !== undefined && own.mixture !== null ? ` Before training, the mixture alone had ${pretty(own.mixture, 5)}.` : "")));
  const legend = element("p", { class: "note" }, element("span", { class: "swatch data" }), " model  ",
    element("span", { class: "swatch samples" }), " proposal");
  const marks = own.best_step ? [{ at: own.best_step, text: "kept" }] : [];
  // With the energies comes another objective: the loss before and after is no single curve.
  const last = own.step[own.step.length - 1];
  const joined = own.energy_from > own.step[0] && own.energy_from < last ? own.energy_from : null;
  target.append(element("div", { class: "two" },
    element("figure", {}, element("h3", {}, "Held-out rows"), curves("Held-out log density during training", {
      x: own.step, xLabel: "step", yLabel: "nats per row", left: 66, marks: own.kept ? marks : [],
      series: [{ name: "model", kind: "data", values: own.validation_log_prob },
        { name: "proposal", kind: "samples", values: own.validation_proposal_log_prob }],
    }), legend),
    element("figure", {}, element("h3", {}, "Training loss"), curves("Training loss", {
      x: own.step, xLabel: "step", yLabel: "loss", left: 66,
      marks: joined ? [{ at: joined, text: "energies join" }] : [],
      series: [{ name: "loss", kind: "data", values: own.loss, cut: joined }],
    }), element("figcaption", {}, "Minus the training objective, in standardised columns; lower is better." +
      (joined ? " When the energies join, their own objective is added." : "")))));
}
