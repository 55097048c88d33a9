// {{name}}: a reward.
//
// Grading data of a task: `{"answer": "..."}`. Design it so that no cheap answer scores well, and
// let `fulgurite reward check` try some.

import { ending, task, turnCount } from "fulgurite:plugin/episode@0.1.0";

const CONFIG_SCHEMA = {
  type: "object",
  properties: {
    turn_cost: {
      type: "number",
      default: 0,
      description: "What each turn after the first costs. An episode passes at 1.",
    },
  },
  additionalProperties: false,
};

export const scorer = {
  describe() {
    return {
      name: "{{name}}",
      version: "0.1.0",
      configSchema: JSON.stringify(CONFIG_SCHEMA),
    };
  },

  score(config) {
    const { turn_cost = 0 } = JSON.parse(config || "{}");
    const right = ending().answer.trim() === JSON.parse(task().grading).answer;
    // A right answer stays worth more than a wrong one, however long it took.
    const total = right ? Math.max(1 - turn_cost * Math.max(turnCount() - 1, 0), 0.5) : 0;
    const components = [{ name: "right", value: right ? 1 : 0 }];
    return { total, components, turns: [], notes: [] };
  },
};
