"""Recipes for graphs whose edges keep their direction, by model, then by column. No logic."""

from __future__ import annotations

from node2seq.recipes.recipe import Recipe

RECIPES: dict[str, dict[str, Recipe]] = {"node2seq": {}}
