/**
 * Seeds that found something, and what. They stay, whatever else is run. A change of the simulation makes other storms of
 * them; then the mistake is put back for a moment, and a seed that finds it takes the place of one that does not any more.
 */
export const keptSeeds: readonly { readonly seed: number; readonly found: string }[] = [];
